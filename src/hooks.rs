//! The seam for other editions: one trait whose default methods do nothing.
