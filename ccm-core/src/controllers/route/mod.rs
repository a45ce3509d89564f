//! Routes to the pods of every Node (specification: controllers §5).
