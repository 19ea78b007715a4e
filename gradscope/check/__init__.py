"""The preflight: every configured target, each under every dtype, judged side by side.

Config ──► cases ──► workers (one process each) ──► Reports ──► accepted ──► Summary
"""
