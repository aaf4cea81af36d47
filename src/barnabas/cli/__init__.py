"""The command `barnabas`. Each subcommand has its own file, which is imported only when the subcommand runs."""
