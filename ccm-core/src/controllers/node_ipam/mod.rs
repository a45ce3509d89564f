//! Pod address ranges of Nodes (specification: controllers §6).
