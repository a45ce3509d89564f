//! Named tasks: whose end matters, and that end within a bounded time.

use std::{
    any::Any, collections::BTreeSet, future::Future, panic::AssertUnwindSafe, time::Duration,
};

use futures::FutureExt as _;
use tokio::{task::JoinSet, time::Instant};

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It returned.
    Returned,
    /// It panicked, with this text.
    Panicked(String),
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The task's name.
    pub name: &'static str,
    /// How.
    pub ending: Ending,
}

/// A set of tasks with unique names. Dropping it ends them all.
#[derive(Default)]
pub struct Tasks {
    set: JoinSet<Ended>,
    running: BTreeSet<&'static str>,
}

impl Tasks {
    /// Without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.insert(name);
        self.set.spawn(async move {
            // Nothing of the task is used after a panic.
            let ending = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) => Ending::Returned,
                Err(panic) => Ending::Panicked(panic_text(panic.as_ref())),
            };
            Ended { name, ending }
        });
    }

    /// The next end of a task; never, when there is none.
    pub async fn next_ended(&mut self) -> Ended {
        loop {
            match self.set.join_next().await {
                Some(Ok(ended)) => {
                    self.running.remove(ended.name);
                    return ended;
                }
                // Only after an abort, which is not used while tasks run.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Waits for all tasks, at most for `grace`; then ends the rest and names it.
    pub async fn finish(mut self, grace: Duration) -> Vec<&'static str> {
        let deadline = Instant::now() + grace;
        while !self.running.is_empty() {
            let ended = tokio::select! {
                biased;
                ended = self.next_ended() => ended,
                () = tokio::time::sleep_until(deadline) => break,
            };
            if let Ending::Panicked(text) = ended.ending {
                tracing::error!(
                    task = ended.name,
                    error = text,
                    "task panicked while ending"
                );
            }
        }
        self.running.into_iter().collect()
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no text".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_task_is_told_with_its_name() {
        let mut tasks = Tasks::new();
        tasks.spawn("fine", async {});
        assert_eq!(
            tasks.next_ended().await,
            Ended {
                name: "fine",
                ending: Ending::Returned
            }
        );
        tasks.spawn("bad", async { panic!("out of {}", "luck") });
        assert_eq!(
            tasks.next_ended().await.ending,
            Ending::Panicked("out of luck".to_owned())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_in_time_is_ended_and_named() {
        let mut tasks = Tasks::new();
        tasks.spawn("quick", tokio::time::sleep(Duration::from_secs(3)));
        tasks.spawn("stuck", std::future::pending());
        let start = Instant::now();
        assert_eq!(tasks.finish(Duration::from_secs(10)).await, ["stuck"]);
        assert_eq!(start.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_in_time_are_not_waited_for_longer() {
        let mut tasks = Tasks::new();
        tasks.spawn("quick", tokio::time::sleep(Duration::from_secs(3)));
        let start = Instant::now();
        assert!(tasks.finish(Duration::from_secs(10)).await.is_empty());
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }
}
