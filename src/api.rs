//! What this server can do: one function per verb, shared by every edge.
