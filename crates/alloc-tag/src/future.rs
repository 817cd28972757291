//! Futures under a tag: it is current during each poll, and only then.
//!
//! A hook must not be held over an `.await`: the thread goes on with other tasks, and the task may go on elsewhere. So the
//! future carries the tag, and each poll enters and leaves it; tasks that interleave on one thread, or move between
//! threads, do not see each other's tags.

use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::saved::SavedTag;

pin_project_lite::pin_project! {
    /// A future that is polled under a tag. Made by [`AllocTagged::alloc_tagged`]. `Send` if the future in it is.
    ///
    /// What its drop allocates is not charged to the tag.
    #[derive(Debug, Clone)]
    #[must_use = "futures do nothing unless polled"]
    pub struct TaggedFuture<F> {
        tag: SavedTag,
        #[pin]
        future: F,
    }
}

impl<F> TaggedFuture<F> {
    /// The future, under the tag.
    pub fn new(tag: impl Into<SavedTag>, future: F) -> Self {
        TaggedFuture {
            tag: tag.into(),
            future,
        }
    }

    /// The tag.
    pub fn tag(&self) -> SavedTag {
        self.tag
    }

    /// The future itself.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for TaggedFuture<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _guard = this.tag.enter();
        this.future.poll(context)
    }
}

/// Puts futures under tags.
pub trait AllocTagged: IntoFuture + Sized {
    /// This future under a tag: a [`SavedTag`], or a `&`[`CodeTag`](crate::CodeTag). The inner one of two wins.
    ///
    /// ```
    /// use alloc_tag::{AllocTagged, alloc_tag_record, current};
    /// use std::future::Future;
    /// # assert!(alloc_tag::runtime::start_local());
    /// let tag = alloc_tag_record!();
    /// let mut task = Box::pin(async { current() }.alloc_tagged(tag));
    /// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// assert_eq!(task.as_mut().poll(&mut context), std::task::Poll::Ready(tag.index()));
    /// assert_eq!(current(), 0);
    /// ```
    fn alloc_tagged(self, tag: impl Into<SavedTag>) -> TaggedFuture<Self::IntoFuture> {
        TaggedFuture::new(tag, self.into_future())
    }

    /// This future under the tag that is current now; for tasks that work for who spawns them.
    fn alloc_tag_inherited(self) -> TaggedFuture<Self::IntoFuture> {
        self.alloc_tagged(SavedTag::current())
    }
}

impl<F: IntoFuture> AllocTagged for F {}

impl SavedTag {
    /// Spawns a future under the tag with any executor's function; what the executor allocates for the task is charged to
    /// the tag, too: `tag.spawn_with(tokio::spawn, serve(connection))`.
    pub fn spawn_with<F: IntoFuture, H>(
        self,
        spawn: impl FnOnce(TaggedFuture<F::IntoFuture>) -> H,
        future: F,
    ) -> H {
        self.charge(|| spawn(TaggedFuture::new(self, future.into_future())))
    }
}
