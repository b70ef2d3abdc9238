"""One module per group of commands; how processes are launched stays in `cli.launch`."""
