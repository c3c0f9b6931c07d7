"""The process under valgrind: how it is started, its client requests, its heap."""
