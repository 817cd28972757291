//! A descriptor with the counters that it points to, as they were at one moment.

use crate::decode::{u32_at, u64_at};
use crate::mem::{Memory, Span};
use memledger_abi::{Descriptor, FIRST_TAG, MODE_NEVER, ModuleRecord, Node, TagRow, UnitMeta};

/// A descriptor and its counters.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) d: Descriptor,
    pub(crate) unit_count: u64,
    pub(crate) tag_count: u32,
    pub(crate) node_count: u32,
    pub(crate) module_count: u32,
    pub(crate) losses: [u64; 8],
    pub(crate) meta_bytes: u64,
    /// Counters that could not be read, and are 0.
    pub(crate) unread: u64,
}

impl View {
    /// Reads the counters; one whose address is 0 is 0.
    ///
    /// # Errors
    /// The name of the value that a reader cannot work with.
    pub(crate) fn read(mem: &dyn Memory, d: &Descriptor) -> Result<Self, &'static str> {
        if d.mode & MODE_NEVER == 0 {
            check(d)?;
        }
        let words = [
            (d.committed_at, 8),
            (d.tag_count_at, 4),
            (d.node_count_at, 4),
            (d.module_count_at, 4),
        ];
        let sums = d.loss_at.iter().chain(&d.meta_bytes_at).map(|&at| (at, 8));
        let wanted: Vec<(u64, usize)> = words.into_iter().chain(sums).collect();
        let mut values = vec![[0; 8]; wanted.len()];
        let span = |(w, v)| {
            let (&(at, len), v): (&(u64, usize), &mut [u8; 8]) = (w, v);
            (at != 0).then(|| Span::new(at, &mut v[..len]))
        };
        let mut spans: Vec<Span<'_>> = wanted.iter().zip(&mut values).filter_map(span).collect();
        mem.read_many(&mut spans);
        if d.committed_at != 0 && !spans[0].ok {
            return Err("committed_at");
        }
        let unread = spans.iter().filter(|s| !s.ok).count() as u64;
        let long = |i: usize| u64_at(&values[i], 0);
        let word = |i: usize| u32_at(&values[i], 0);
        let losses = std::array::from_fn(|i| long(words.len() + i));
        let meta = (words.len() + losses.len()..values.len()).map(long);
        let unit_count = long(0) >> d.unit_shift.min(63);
        if unit_count > 1 << 40 {
            return Err("committed");
        }
        Ok(View {
            d: *d,
            unit_count,
            tag_count: word(1),
            node_count: word(2),
            module_count: word(3),
            losses,
            meta_bytes: meta.fold(0, u64::saturating_add),
            unread,
        })
    }
}

/// Checks what the reader relies on; else names the value that is wrong.
fn check(d: &Descriptor) -> Result<(), &'static str> {
    let stride = |n: u32, size: usize| (size..=4096).contains(&(n as usize));
    let checks = [
        (matches!(d.cell_size, 2 | 4), "cell_size"),
        ((12..=30).contains(&d.unit_shift), "unit_shift"),
        (stride(d.unit_stride, size_of::<UnitMeta>()), "unit_stride"),
        (
            d.tag_count_at == 0 || stride(d.tag_stride, size_of::<TagRow>()),
            "tag_stride",
        ),
        (
            d.node_count_at == 0 || stride(d.node_stride, size_of::<Node>()),
            "node_stride",
        ),
        (
            d.module_count_at == 0 || stride(d.module_stride, size_of::<ModuleRecord>()),
            "module_stride",
        ),
        (d.site_base >= FIRST_TAG, "site_base"),
    ];
    checks
        .iter()
        .find(|(ok, _)| !ok)
        .map_or(Ok(()), |(_, what)| Err(what))
}
