//! Services whose requests are charged to a tag.

use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::{SavedTag, TaggedFuture};

/// A `tower::Layer`: what the service under it allocates (getting ready, taking a request, each poll of the answer) is charged
/// to one tag. One layer for each route splits a server's memory by route.
///
/// ```
/// use memledger::{AllocTagLayer, alloc_tag_record};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let service = ServiceBuilder::new()
///     .layer(AllocTagLayer::new(alloc_tag_record!()))
///     .service(service_fn(|n: usize| async move { Ok::<_, std::io::Error>(vec![0_u8; n]) }));
/// assert_eq!(service.oneshot(10).await.unwrap().len(), 10);
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AllocTagLayer {
    tag: SavedTag,
}

impl AllocTagLayer {
    /// The layer of a tag.
    pub fn new(tag: impl Into<SavedTag>) -> Self {
        AllocTagLayer { tag: tag.into() }
    }
}

impl<S> Layer<S> for AllocTagLayer {
    type Service = AllocTagService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AllocTagService {
            tag: self.tag,
            inner,
        }
    }
}

/// A service under a tag: made by [`AllocTagLayer`].
#[derive(Debug, Clone, Copy)]
pub struct AllocTagService<S> {
    tag: SavedTag,
    inner: S,
}

impl<S, R> Service<R> for AllocTagService<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = TaggedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.tag.charge(|| self.inner.poll_ready(context))
    }

    fn call(&mut self, request: R) -> Self::Future {
        TaggedFuture::new(self.tag, self.tag.charge(|| self.inner.call(request)))
    }
}
