//! Rows of a trace's views, with names.

use super::args::{Sort, View, Weight};
use memledger_formats::kallsyms::Kallsyms;
use memledger_formats::trace::stats::{Counts, Stats};
use memledger_formats::trace::{Names, Site, SiteId, WordId, migrate_name};
use std::collections::BTreeMap;

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) counts: Counts,
}

/// Names of a trace, with symbols.
#[derive(Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) names: &'a Names,
    pub(crate) symbols: &'a Kallsyms,
}

impl Labels<'_> {
    pub(crate) fn site(&self, id: SiteId) -> String {
        match self.names.get_site(id) {
            Site::Address(address) => self
                .symbols
                .near(address)
                .unwrap_or_else(|| format!("{address:#x}")),
            Site::Text(word) => self.word(word),
        }
    }

    pub(crate) fn word(&self, id: WordId) -> String {
        let text = self.names.text(id);
        if text.is_empty() {
            "(none)".to_owned()
        } else {
            text.to_owned()
        }
    }
}

/// Rows of equal names added up, those that allocated nothing left out.
fn merge(rows: impl Iterator<Item = (String, Counts)>) -> Vec<Row> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for (name, counts) in rows.filter(|(_, c)| c.allocs > 0) {
        all.entry(name).or_default().add(&counts);
    }
    all.into_iter()
        .map(|(name, counts)| Row { name, counts })
        .collect()
}

/// The row of pages that have no call site in the trace.
const PAGES: &str = "(pages: no call site)";

/// Functions that hand out pages for others: their caller is the call site.
const PAGE_HELPERS: [&str; 8] = [
    "trace_event_raw_event_mm_page",
    "alloc_pages",
    "__alloc_pages",
    "alloc_frozen_pages",
    "__alloc_frozen_pages",
    "folio_alloc",
    "__folio_alloc",
    "vma_alloc_folio",
];

/// Rows by call site. Pages have none in their events, but in their stacks.
fn sites(stats: &Stats, labels: Labels) -> impl Iterator<Item = (String, Counts)> {
    let mut out = Vec::new();
    let names = labels.names;
    let mut by_stack = Counts::default();
    for (i, counts) in stats
        .page_stacks
        .iter()
        .enumerate()
        .filter(|(_, c)| c.allocs > 0)
    {
        let frames = names.frames(names.nth_stack(i));
        let helper = |name: &str| {
            PAGE_HELPERS
                .iter()
                .any(|h| name.starts_with(h) || name.starts_with("get_free_pages"))
        };
        let site = frames
            .iter()
            .map(|f| labels.site(*f))
            .find(|name| !helper(name));
        out.push((site.unwrap_or_else(|| PAGES.to_owned()), *counts));
        by_stack.add(counts);
    }
    for (i, counts) in stats.sites.iter().enumerate().filter(|(_, c)| c.allocs > 0) {
        let id = names.nth_site(i);
        if id.is_none() {
            out.push((PAGES.to_owned(), counts.without(&by_stack)));
        } else {
            out.push((labels.site(id), *counts));
        }
    }
    out.into_iter()
}

/// Rows of a view; empty for views that are no table of sums.
pub(crate) fn rows(view: View, stats: &Stats, labels: Labels) -> Vec<Row> {
    let names = labels.names;
    let words = |rows: &[Counts]| {
        let all: Vec<(String, Counts)> = (0..names.words().min(rows.len()))
            .map(|i| (i, rows[i]))
            .filter(|(_, c)| c.allocs > 0)
            .map(|(i, c)| (labels.word(names.nth_word(i)), c))
            .collect();
        merge(all.into_iter())
    };
    match view {
        View::Site => merge(sites(stats, labels)),
        View::Cache => words(&stats.caches),
        View::Flags => words(&stats.flags),
        View::Task => merge(
            stats
                .tasks
                .iter()
                .map(|((pid, comm), c)| (format!("{}-{pid}", labels.word(*comm)), *c)),
        ),
        View::Migrate => merge(
            stats
                .migrate
                .iter()
                .enumerate()
                .map(|(i, c)| (migrate_name(i as u8).to_owned(), *c)),
        ),
        _ => Vec::new(),
    }
}

/// The largest first; equal ones by name.
pub(crate) fn sort(rows: &mut [Row], by: Sort) {
    let key = |row: &Row| match by {
        Sort::Given => row.counts.given,
        Sort::Hits => row.counts.allocs,
        Sort::Waste => row.counts.waste(),
        Sort::Live => row.counts.live(),
        Sort::Cross => row.counts.cross_cpu,
    };
    rows.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
}

/// A site with objects that look leaked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leak {
    pub(crate) site: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) oldest: u64,
    pub(crate) confidence: f64,
}

/// Leak candidates: live objects older than any freed object of their site. The most bytes, weighed by confidence, first.
pub(crate) fn leaks(stats: &Stats, labels: Labels) -> Vec<Leak> {
    let end = stats.span.map_or(0, |span| span.1);
    let mut all: BTreeMap<String, Leak> = BTreeMap::new();
    for live in stats
        .live
        .values()
        .filter(|l| l.behind.is_none() && !l.site.is_none())
    {
        let counts = stats
            .sites
            .get(live.site.index())
            .copied()
            .unwrap_or_default();
        let age = end.saturating_sub(live.time);
        if age <= counts.longest {
            continue;
        }
        let site = labels.site(live.site);
        let leak = all.entry(site.clone()).or_insert(Leak {
            site,
            objects: 0,
            bytes: 0,
            oldest: 0,
            confidence: 0.0,
        });
        leak.objects += 1;
        leak.bytes = leak.bytes.saturating_add(live.given);
        leak.oldest = leak.oldest.max(age);
        let half = if counts.frees == 0 { 0.5 } else { 1.0 };
        leak.confidence = leak.confidence.max(stats.confidence() * half);
    }
    let mut all: Vec<Leak> = all.into_values().collect();
    let weight = |leak: &Leak| leak.bytes as f64 * leak.confidence;
    all.sort_by(|a, b| {
        weight(b)
            .total_cmp(&weight(a))
            .then_with(|| a.site.cmp(&b.site))
    });
    all
}

/// Stacks, outermost frame first, with their weight; by task and site where the trace has no stacks.
pub(crate) fn folded(stats: &Stats, labels: Labels, weight: Weight) -> BTreeMap<Vec<String>, u64> {
    let of = |c: &Counts| match weight {
        Weight::Live => c.live(),
        Weight::Allocated => c.given,
        Weight::Hits => c.allocs,
    };
    let mut all = BTreeMap::new();
    for (i, counts) in stats.stacks.iter().enumerate().filter(|(_, c)| of(c) > 0) {
        let frames = labels.names.frames(labels.names.nth_stack(i));
        let mut stack: Vec<String> = frames.iter().map(|f| function(&labels.site(*f))).collect();
        stack.reverse();
        *all.entry(stack).or_default() += of(counts);
    }
    for ((comm, site), counts) in stats.comm_sites.iter().filter(|(_, c)| of(c) > 0) {
        let site = if site.is_none() {
            PAGES.to_owned()
        } else {
            function(&labels.site(*site))
        };
        *all.entry(vec![labels.word(*comm), site]).or_default() += of(counts);
    }
    all
}

/// A function without the offset in it; no semicolons, which separate frames.
fn function(site: &str) -> String {
    let end = site.rfind("+0x").unwrap_or(site.len());
    site[..end].replace(';', ":")
}
