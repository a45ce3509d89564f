use std::collections::BTreeSet;

use prometheus::Registry;

use super::*;

fn queue(backoff: Backoff) -> (WorkQueue<&'static str>, Registry) {
    let registry = Registry::new();
    let metrics = QueueMetrics::new(&registry).unwrap();
    (WorkQueue::new("test", backoff, &metrics), registry)
}

fn value(registry: &Registry, name: &str) -> f64 {
    let family = registry.gather().into_iter().find(|f| f.name() == name);
    let family = family.unwrap();
    let metric = &family.get_metric()[0];
    if family.get_field_type() == prometheus::proto::MetricType::COUNTER {
        metric.get_counter().get_value()
    } else {
        metric.get_gauge().get_value()
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_handed_out_once() {
    let (queue, registry) = queue(Backoff::SERVICE);
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.len(), 2);
    assert_eq!(*queue.next().await.unwrap(), "a");
    assert_eq!(*queue.next().await.unwrap(), "b");
    assert!(queue.is_idle());
    assert_eq!(value(&registry, "workqueue_adds_total"), 2.0);
    assert_eq!(value(&registry, "workqueue_depth"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_worked_on_comes_again_afterwards() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    queue.add("a");
    let work = queue.next().await.unwrap();
    queue.add("a");
    assert!(queue.is_empty(), "nobody else may get the key now");
    work.finish(Outcome::Done);
    assert_eq!(*queue.next().await.unwrap(), "a");
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_filled_with_what_is_ready_now() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    queue.add("a");
    queue.add("b");
    queue.add_after("c", Duration::from_secs(1));
    let first = queue.next().await.unwrap();
    let second = queue.try_next().unwrap();
    assert_eq!((*first, *second), ("a", "b"));
    assert!(queue.try_next().is_none(), "c is not due");
    queue.add("a");
    assert!(queue.try_next().is_none(), "a is being worked on");
    first.finish(Outcome::Done);
    assert_eq!(*queue.try_next().unwrap(), "a");
    queue.add("d");
    queue.close();
    assert!(queue.try_next().is_none(), "closed");
}

/// REQ-SVC-17
#[tokio::test(start_paused = true)]
async fn failures_back_off_from_five_seconds_to_five_minutes() {
    let (queue, registry) = queue(Backoff::SERVICE);
    queue.add("a");
    let mut waits = Vec::new();
    for _ in 0..8 {
        let start = Instant::now();
        let work = queue.next().await.unwrap();
        waits.push(start.elapsed().as_secs());
        work.finish(Outcome::Retry);
    }
    assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 300]);
    assert_eq!(queue.failures(&"a"), 8);
    queue.next().await.unwrap().finish(Outcome::Done);
    assert_eq!(queue.failures(&"a"), 0);
    assert_eq!(value(&registry, "workqueue_retries_total"), 8.0);
}

/// REQ-NODE-23
#[tokio::test(start_paused = true)]
async fn the_default_back_off_doubles_from_five_milliseconds_to_a_thousand_seconds() {
    let (queue, _registry) = queue(Backoff::CONTROLLER_DEFAULT);
    queue.add("a");
    let mut waits = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let work = queue.next().await.unwrap();
        waits.push(start.elapsed().as_millis());
        work.finish(Outcome::Retry);
    }
    assert_eq!(waits[..5], [0, 5, 10, 20, 40]);
    assert_eq!(*waits.last().unwrap(), 1_000_000);
    queue.next().await.unwrap().finish(Outcome::Done);
    queue.add_rate_limited("a");
    let start = Instant::now();
    queue.next().await.unwrap().finish(Outcome::Done);
    assert_eq!(
        start.elapsed().as_millis(),
        5,
        "a success resets the back-off"
    );
}

/// REQ-SVC-16
#[tokio::test(start_paused = true)]
async fn an_exact_wait_neither_counts_nor_resets_failures() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    queue.add("a");
    queue.next().await.unwrap().finish(Outcome::Retry);
    queue
        .next()
        .await
        .unwrap()
        .finish(Outcome::RetryAfter(Duration::from_secs(42)));
    assert_eq!(queue.failures(&"a"), 1);
    let start = Instant::now();
    let work = queue.next().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(42));
    work.finish(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn an_add_cancels_a_pending_wait() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    queue.add_after("a", Duration::from_secs(300));
    queue.add("a");
    let start = Instant::now();
    queue.next().await.unwrap().finish(Outcome::Done);
    assert!(start.elapsed().is_zero());
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn the_shared_bucket_slows_a_mass_of_failing_keys() {
    let registry = Registry::new();
    let metrics = QueueMetrics::new(&registry).unwrap();
    let queue = WorkQueue::new("test", Backoff::CONTROLLER_DEFAULT, &metrics);
    for n in 0..200 {
        queue.add_rate_limited(n);
    }
    let start = Instant::now();
    for _ in 0..200 {
        queue.next().await.unwrap().finish(Outcome::Done);
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!((9.0..=10.1).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn workers_finish_what_they_have_and_stop() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    let shutdown = CancellationToken::new();
    let done = Mutex::new(BTreeSet::new());
    queue.add("a");
    queue.add("b");
    queue.add("c");
    let run = run_workers(&queue, 2, &shutdown, |key| {
        let (shutdown, done) = (&shutdown, &done);
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            shutdown.cancel();
            done.lock().unwrap().insert(key);
            Outcome::Done
        }
    });
    run.await;
    assert_eq!(*done.lock().unwrap(), BTreeSet::from(["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_clock_is_a_long_wait_and_no_panic() {
    let (queue, _registry) = queue(Backoff::SERVICE);
    queue.add_after("a", Duration::MAX);
    queue.add("b");
    assert_eq!(*queue.next().await.unwrap(), "b");
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    assert!(queue.try_next().is_none(), "it waits");
    assert!(!queue.is_idle(), "it is not lost");
    queue.add_after("a", Duration::from_secs(1));
    assert_eq!(*queue.next().await.unwrap(), "a", "the earliest counts");
}
