"""What autograd refuses: noted while the program runs, and asked for when an exception ends it."""

from gradscope.record.refusals.exceptions import refused_by_scaler as refused_by_scaler
from gradscope.record.refusals.inquiry import refusal_of as refusal_of
from gradscope.record.refusals.notes import Notes as Notes
