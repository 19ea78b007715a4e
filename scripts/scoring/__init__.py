"""How often gradscope is right, on programs whose truth somebody wrote down.

A folder of cases holds `truth.yaml`, a broken program for each entry in it, and mostly the same
program repaired. The lines that are to blame end in a marker, which no tool gets to see.
"""
