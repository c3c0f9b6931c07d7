"""The process under valgrind: how it is started. What is told it by machine code stands in `machine_code`."""
