"""How rows enter and leave a flow: `read` begins a stream, `to` ends one."""
