package main

// ftlCommand is tidemark ftl: modules declared in Go source.
type ftlCommand struct {
	Schema ftlSchemaCommand `cmd:"" help:"Print the schema of modules."`
	Check  ftlCheckCommand  `cmd:"" help:"Say what is wrong with the source of modules."`
	Dev    ftlDevCommand    `cmd:"" help:"Run modules on a node of their own, and build them again when a file is saved."`
	Deploy ftlDeployCommand `cmd:"" help:"Build modules, provision what they declare on a node, and run them."`
	Status ftlStatusCommand `cmd:"" help:"Show the modules of a node: topics, subscriptions, what is in flight and what failed."`
	Retry  ftlRetryCommand  `cmd:"" help:"Try again now what a subscription has in flight."`
	Skip   ftlSkipCommand   `cmd:"" help:"Give up on the oldest event that a subscription has in flight."`
	Reset  ftlResetCommand  `cmd:"" help:"Move a subscription to another place in its topic."`
}
