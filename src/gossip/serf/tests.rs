//! Scripts for whole pools: what a member does, and what the others see of it.

mod hostile;
mod lives;
mod pool;
mod queries;
mod restarts;
mod simulation;
