"""One module for each group of commands; none knows how processes are launched in detail."""
