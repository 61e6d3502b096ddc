//! Composition root: builds, starts and stops every part.
