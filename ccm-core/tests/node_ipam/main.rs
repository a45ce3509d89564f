//! The node IPAM controller against an API server in the process and a cloud in memory, on virtual
//! time.

#[cfg(test)]
mod cloud_allocators;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod range;
#[cfg(test)]
mod world;
