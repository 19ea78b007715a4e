"""What a rule asks a repair for: a change, and the facts that tell where and how.

Each is a class of its own. `rules/wording/proposals` says what it is called, and what it looks like
in code; the function of `repair/write` whose `request` is said to be of that class writes it."""

from gradscope.facts.requests.about_graphs import *
from gradscope.facts.requests.about_training import *
from gradscope.facts.requests.about_values import *
from gradscope.facts.requests.request import *
