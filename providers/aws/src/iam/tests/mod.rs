//! The policies against the code: they are attached to the emulated cloud, and the provider works
//! under them.

mod documents;
mod go_manager;
mod least;
mod world;
