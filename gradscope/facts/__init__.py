"""The facts that flow from the recorder to the report. Frozen, small, without torch.

A number that was measured is a Python float, NaN and inf included; only the JSON report turns
those into strings. Facts cross a process boundary, so everything here pickles. All of them are
found here, but for what a rule asks for, which is found in `requests`.
"""

from gradscope.facts.compared import *
from gradscope.facts.effects import *
from gradscope.facts.events import *
from gradscope.facts.findings import *
from gradscope.facts.functions import *
from gradscope.facts.magnitudes import *
from gradscope.facts.modes import *
from gradscope.facts.numbers import *
from gradscope.facts.places import *
from gradscope.facts.refusals import *
from gradscope.facts.reports import *
from gradscope.facts.traces import *
from gradscope.facts.usage import *
from gradscope.facts.verdicts import *
