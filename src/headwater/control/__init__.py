"""Who answers for an app, who places it, who runs it, and how rows find their way. Pure machines."""
