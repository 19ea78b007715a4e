"""The facts that flow from the recorder to the report. Frozen, small, without torch.

A number that was measured is a Python float, NaN and inf included; only the JSON report turns
those into strings. Facts cross a process boundary, so everything here pickles.
"""

from gradscope.facts.effects import Effect as Effect
from gradscope.facts.effects import EffectKind as EffectKind
from gradscope.facts.effects import hindrance as hindrance
from gradscope.facts.events import Ancestor as Ancestor
from gradscope.facts.events import Event as Event
from gradscope.facts.events import Kind as Kind
from gradscope.facts.events import Operand as Operand
from gradscope.facts.events import Phase as Phase
from gradscope.facts.findings import Edit as Edit
from gradscope.facts.findings import Finding as Finding
from gradscope.facts.findings import Fix as Fix
from gradscope.facts.findings import Related as Related
from gradscope.facts.findings import Root as Root
from gradscope.facts.findings import Severity as Severity
from gradscope.facts.findings import Strength as Strength
from gradscope.facts.functions import FunctionCheck as FunctionCheck
from gradscope.facts.hazards import Approach as Approach
from gradscope.facts.hazards import DistanceOf as DistanceOf
from gradscope.facts.hazards import Headroom as Headroom
from gradscope.facts.limits import NotChecked as NotChecked
from gradscope.facts.magnitudes import Absence as Absence
from gradscope.facts.magnitudes import Activation as Activation
from gradscope.facts.magnitudes import Clearing as Clearing
from gradscope.facts.magnitudes import Depth as Depth
from gradscope.facts.magnitudes import Growth as Growth
from gradscope.facts.magnitudes import LateClip as LateClip
from gradscope.facts.magnitudes import LayerSize as LayerSize
from gradscope.facts.magnitudes import Leaf as Leaf
from gradscope.facts.magnitudes import Limits as Limits
from gradscope.facts.magnitudes import Magnitudes as Magnitudes
from gradscope.facts.magnitudes import Summed as Summed
from gradscope.facts.magnitudes import Update as Update
from gradscope.facts.numbers import number as number
from gradscope.facts.numbers import percent as percent
from gradscope.facts.numbers import plural as plural
from gradscope.facts.numbers import text_of as text_of
from gradscope.facts.overwrites import Overwrite as Overwrite
from gradscope.facts.places import Call as Call
from gradscope.facts.places import Location as Location
from gradscope.facts.reads import NanRead as NanRead
from gradscope.facts.reports import Report as Report
from gradscope.facts.reports import Summary as Summary
from gradscope.facts.symptoms import Subject as Subject
from gradscope.facts.symptoms import Symptom as Symptom
from gradscope.facts.symptoms import Trouble as Trouble
from gradscope.facts.traces import ArrayWarning as ArrayWarning
from gradscope.facts.traces import Ending as Ending
from gradscope.facts.traces import Environment as Environment
from gradscope.facts.traces import Gradient as Gradient
from gradscope.facts.traces import Setting as Setting
from gradscope.facts.traces import Step as Step
from gradscope.facts.traces import Trace as Trace
from gradscope.facts.verdicts import NotTried as NotTried
from gradscope.facts.verdicts import Reason as Reason
from gradscope.facts.verdicts import Refuted as Refuted
from gradscope.facts.verdicts import Verdict as Verdict
from gradscope.facts.verdicts import Verified as Verified
