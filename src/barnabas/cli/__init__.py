"""The command `barnabas`: one file per subcommand, imported only when it runs."""
