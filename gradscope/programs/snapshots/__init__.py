"""Copies of the running program that sleep between two of its steps, and go on from there when they
are asked to.

    run's process ──fork──► copy (sleeps) ──fork, a question──► worker: goes on as a repeated run
"""
