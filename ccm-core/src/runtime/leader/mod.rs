//! Which replica works (specification: controllers §7.2).
