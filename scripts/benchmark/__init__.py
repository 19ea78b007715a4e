"""What gradscope costs: time for a step, memory held, time to start. Ratios of one run."""
