"""Is a custom autograd.Function's backward the derivative of its forward?

functions   the calls of the program that are checked, each signature once
calls       the forward and backward calls of the Function, counted
derivative  the right gradient at one point
incoming    whether a gradient depends on the one that comes in
relations   how a wrong gradient relates to the right one
blame       the op and the line that made a returned gradient, and its correction
changes     the small changes of a backward's own source
slips       the smallest of them that makes it right
experiment  which calls are made and what they show
"""
