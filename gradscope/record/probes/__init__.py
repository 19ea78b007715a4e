"""Is a custom autograd.Function's backward the derivative of its forward?

isolate    the experiment runs in a forked copy of the program, or with its state put back
calls      the forward and backward calls of the Function, counted
slopes     central differences along a direction, and the kinks they cross
experiment which calls are made and what they show
relations  how a wrong gradient relates to the right one
blame      the op and the line that made a returned gradient
"""
