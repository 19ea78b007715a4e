"""Whether watching changes anything: every op, module and optimizer of torch's test databases is
run with and without the recorder, and everything that can be seen of it is compared.
"""
