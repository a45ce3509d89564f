//! The node and node lifecycle controllers against an API server in the process and a cloud in
//! memory, on virtual time.

#[cfg(test)]
mod cloud;
#[cfg(test)]
mod heartbeats;
#[cfg(test)]
mod initialisation;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod lifecycle_faults;
#[cfg(test)]
mod lost_answers;
#[cfg(test)]
mod refresh;
#[cfg(test)]
mod throttling;
#[cfg(test)]
mod together;
#[cfg(test)]
mod world;
