//! The body of an answer: measured and bounded in time while it is read, never buffered.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::BoxError;

use super::metrics::Series;

/// What is known about a request when the head of its answer arrives.
pub(super) struct Measure {
    pub(super) series: Series,
    pub(super) verb: String,
    pub(super) host: String,
    pub(super) start: Instant,
}

/// A body that tells the series its size and the duration of its request when it ends.
pub(super) struct Measured<B> {
    inner: B,
    /// `None` for watches, and after the end.
    measure: Option<Measure>,
    bytes: u64,
    /// The body must have ended by then; `None` for watches.
    limit: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl<B> Measured<B> {
    /// The answer to a request that ends: its body must be there `within` this time.
    pub(super) fn unary(inner: B, measure: Measure, within: Duration) -> Self
    where
        B: Body,
    {
        let empty = inner.is_end_stream();
        let mut body = Self {
            inner,
            measure: Some(measure),
            bytes: 0,
            limit: Some((Box::pin(tokio::time::sleep(within)), within)),
        };
        if empty {
            body.end(true);
        }
        body
    }

    /// The answer to a watch.
    pub(super) fn endless(inner: B) -> Self {
        Self {
            inner,
            measure: None,
            bytes: 0,
            limit: None,
        }
    }

    fn end(&mut self, whole: bool) {
        if let Some(of) = self.measure.take() {
            of.series.took(&of.verb, &of.host, of.start.elapsed());
            if whole {
                of.series.received(&of.verb, &of.host, self.bytes);
            }
        }
    }
}

impl<B> Body for Measured<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some((limit, within)) = &mut this.limit
            && limit.as_mut().poll(cx).is_ready()
        {
            let seconds = within.as_secs();
            this.end(false);
            return Poll::Ready(Some(Err(format!(
                "the answer did not end within {seconds} seconds"
            )
            .into())));
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                this.bytes = this.bytes.saturating_add(length as u64);
                // A reader that is told so does not ask again.
                if this.inner.is_end_stream() {
                    this.end(true);
                }
            }
            Some(Err(_)) => this.end(false),
            None => this.end(true),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for Measured<B> {
    /// Nobody reads on: the request is over, and its size is not known.
    fn drop(&mut self) {
        self.end(false);
    }
}
