//! Leader loop that runs the checks of catalog nodes without an agent.
