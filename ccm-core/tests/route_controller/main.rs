//! The route controller against an API server in the process and routes in memory, on virtual
//! time.

#[cfg(test)]
mod classic;
#[cfg(test)]
mod cloud;
#[cfg(test)]
mod condition;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod world;
