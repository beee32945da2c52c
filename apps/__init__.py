"""The applications that ship with Headwater: `headwater apps` lists them, `headwater run NAME` runs one."""
