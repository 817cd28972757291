//! Several sources in order of time.
//!
//! Each is in order by itself, so the next event is the earliest of the first events of all: one event of each is in memory.
//! Losses and other items keep their place between the events of their own source.

use std::io;

use super::event::{Info, Item, Source};
use super::names::Names;

/// Sources merged by time. Of equal times, the first source's event comes first.
#[derive(Debug)]
pub struct Merge<S> {
    sources: Vec<S>,
    /// The event of each source that has been read ahead; `None` when it must be read, or is at its end.
    ahead: Vec<Option<Item>>,
    /// Time of each: that of `ahead`, `MAX` at the end of the source.
    times: Vec<u64>,
    /// The source that was read from last and has nothing ahead.
    read: usize,
    started: bool,
}

impl<S: Source> Merge<S> {
    /// Merges `sources`.
    #[must_use]
    pub fn new(sources: Vec<S>) -> Self {
        let n = sources.len();
        Merge {
            sources,
            ahead: vec![None; n],
            times: vec![0; n],
            read: 0,
            started: false,
        }
    }

    /// The sources.
    #[must_use]
    pub fn sources(&self) -> &[S] {
        &self.sources
    }

    /// Reads one item of a source ahead. What has no time is handed on at once.
    fn read_ahead(&mut self, source: usize, names: &mut Names) -> io::Result<Option<Item>> {
        match self.sources[source].next_item(names)? {
            None => self.times[source] = u64::MAX,
            Some(item) => match item.time() {
                None => return Ok(Some(item)),
                Some(time) => {
                    self.times[source] = time;
                    self.ahead[source] = Some(item);
                }
            },
        }
        Ok(None)
    }

    /// Fills every place that is empty.
    fn start(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        while self.read < self.sources.len() {
            if let Some(item) = self.read_ahead(self.read, names)? {
                return Ok(Some(item));
            }
            self.read += 1;
        }
        self.started = true;
        self.read = usize::MAX;
        Ok(None)
    }
}

impl<S: Source> Source for Merge<S> {
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        if let [only] = self.sources.as_mut_slice() {
            return only.next_item(names);
        }
        if !self.started {
            if let Some(item) = self.start(names)? {
                return Ok(Some(item));
            }
        } else if self.read < self.sources.len() {
            if let Some(item) = self.read_ahead(self.read, names)? {
                return Ok(Some(item));
            }
            self.read = usize::MAX;
        }
        let earliest = (0..self.times.len())
            .filter(|&i| self.ahead[i].is_some())
            .min_by_key(|&i| self.times[i]);
        let Some(source) = earliest else {
            return Ok(None);
        };
        self.read = source;
        Ok(self.ahead[source].take())
    }

    fn info(&self) -> Info {
        let mut all = self.sources.iter().map(Source::info);
        let mut info = all.next().unwrap_or_default();
        for other in all {
            info.resolution = info.resolution.max(other.resolution);
            info.hashed |= other.hashed;
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Class, Event, Lost, Op};
    use super::*;

    struct List(std::vec::IntoIter<Item>);

    impl Source for List {
        fn next_item(&mut self, _: &mut Names) -> io::Result<Option<Item>> {
            Ok(self.0.next())
        }
        fn info(&self) -> Info {
            Info::default()
        }
    }

    fn at(time: u64, ptr: u64) -> Item {
        Item::Event(Event::new(Op::Alloc, Class::Kmalloc, time, ptr))
    }

    #[test]
    fn by_time_and_losses_in_place() {
        let lost = Item::Lost(Lost {
            cpu: Some(1),
            events: Some(3),
        });
        let a = vec![at(1, 0), at(4, 0), at(4, 1), at(9, 0)];
        let b = vec![lost.clone(), at(2, 5), lost.clone(), at(4, 5), lost.clone()];
        let mut merge = Merge::new(vec![
            List(a.into_iter()),
            List(vec![].into_iter()),
            List(b.into_iter()),
        ]);
        let mut names = Names::new();
        let mut got = Vec::new();
        while let Some(item) = merge.next_item(&mut names).expect("memory") {
            got.push(item);
        }
        let want = [
            lost.clone(),
            at(1, 0),
            at(2, 5),
            lost.clone(),
            at(4, 0),
            at(4, 1),
            at(4, 5),
            lost,
            at(9, 0),
        ];
        assert_eq!(got, want);
    }
}
