//! Which functions without a name are allocator wrappers: a guess from who calls whom.
//!
//! A stripped program does not tell that `prog+0x5310` is its `xmalloc`; that nearly everything is allocated through it does.
//! All nodes of the trie are looked at, those without live memory too. A node *passes* if all that it called, down to the
//! allocator, is helpers ([`crate::Helpers`], by name) or wrappers (by this guess). A function without a name, of known
//! bounds, is taken for a wrapper if all of this holds:
//! - Passing nodes of it are called by at least [`CALLERS`] distinct functions; or by nothing but helpers and wrappers: the
//!   inner ones of a chain, as `sqlite3MemMalloc`, have one caller.
//! - All allocations below it, passing or not, come from at most [`PLACES`] return addresses in it: it does one thing.
//! - Its code is no longer than [`SIZE`].
//! - None of the places is that of a *maker*: one that has live objects for [`MAKER_CALLERS`] callers or more, but all of one
//!   size. That is the constructor of a type (`PyDict_New`), and worth a row; a wrapper is asked for all sizes.
//!
//! Functions with a name are never guessed at. Callers whose bounds are not known count as one for each object. The answer
//! is the largest set of functions for which this holds together, found from above: all that may be, then those for which it
//! does not hold are taken out until none is left. So it depends on nothing but the nodes and the live sizes, in any order.
//!
//! The numbers were chosen by what is known of stripped programs. git: `xmalloc` and its like have 5 to 25 callers after one
//! command, one place and 31 to 256 bytes; SQLite: 9 callers, one place, 58 bytes. With three places bash's maker of
//! variables would be taken too. CPython without any name has the same ten largest rows as with all of them; without the
//! last two conditions `PyDict_New`, `PyList_New`, `PyUnicode_New` and what stands on it would be skipped. A constructor of
//! objects of many sizes (`PyTuple_New`) cannot be told from a wrapper, nor a wrapper that has few callers so far from a
//! user.

use crate::symbols::Place;
use crate::{Helpers, Ledger, Snapshot, Symbolizer};
use std::collections::{HashMap, HashSet};

/// Most places in a wrapper that its allocations come from.
const PLACES: usize = 2;
/// Fewest functions that call a wrapper.
const CALLERS: usize = 5;
/// Largest code of a wrapper, in bytes.
const SIZE: u64 = 512;
/// Callers whose live objects, if all of one size, tell a maker of one type.
const MAKER_CALLERS: usize = 3;

/// A function without a name that is taken for an allocator wrapper, as [`Helpers::set_guess`] permits.
///
/// It is small, calls for memory in one or two places, for objects of several sizes, and many functions call it, or only
/// helpers and other wrappers. The guess is made from all stacks that the ledger knows; it may change as more are seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wrapper {
    /// Path of the object file as the process sees it.
    pub object: String,
    /// GNU build-id of the object, as hex; empty = none.
    pub build_id: String,
    /// Start of the function in the object's own terms.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Functions seen to call it for memory.
    pub callers: usize,
    /// Places in it that memory was allocated from.
    pub places: usize,
}

/// What tells functions apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    Named(String, String),
    Unnamed(String, String, u64),
    /// Of an object, bounds not known.
    Unknown(String, String),
}

/// A function of the call graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A helper by its name.
    Helper,
    /// One without a name, of known bounds.
    Unnamed,
    Other,
}

/// A node: a call out of a function, made while it was itself called from the node that hangs from it.
#[derive(Debug, Clone, Copy)]
struct Call {
    func: usize,
    addr: u64,
    /// Number of the call that is one frame further in; `None` = it called the allocator.
    inner: Option<usize>,
}

/// What the calls tell of a function.
#[derive(Debug, Clone, Default)]
struct Seen {
    passes: bool,
    callers: HashSet<usize>,
}

#[derive(Debug, Default)]
struct Graph {
    kinds: Vec<Kind>,
    /// Sizes in bytes, 0 = not known.
    sizes: Vec<u64>,
    calls: Vec<Call>,
    /// Live memory: outermost call of its stack, bytes and number of allocations.
    live: Vec<(usize, u64, u64)>,
}

impl Graph {
    /// Return addresses in each function.
    fn places(&self) -> Vec<usize> {
        let mut places = vec![HashSet::new(); self.kinds.len()];
        for call in &self.calls {
            places[call.func].insert(call.addr);
        }
        places.iter().map(HashSet::len).collect()
    }

    /// Functions that allocate objects of one size in some place, though for several callers: makers of one type.
    fn makers(&self) -> HashSet<usize> {
        #[derive(Default)]
        struct Made {
            sizes: HashSet<u64>,
            callers: HashSet<usize>,
        }
        let mut made: HashMap<(usize, u64), Made> = HashMap::new();
        for &(site, bytes, count) in &self.live {
            let (mut at, mut number, mut caller) = (self.calls.get(site), site, None);
            while let Some(call) = at {
                let place = made.entry((call.func, call.addr)).or_default();
                // Of several sizes the mean is seldom whole.
                let mean = bytes / count.max(1);
                place.sizes.insert(mean);
                if bytes % count.max(1) != 0 {
                    place.sizes.insert(mean + 1);
                }
                place.callers.extend(caller);
                caller = Some(call.func);
                // Inner calls come first; a trie that says otherwise must not lead in circles.
                at = call
                    .inner
                    .filter(|i| *i < number)
                    .and_then(|i| self.calls.get(i));
                number = call.inner.unwrap_or(0);
            }
        }
        let fixed = |m: &Made| m.sizes.len() == 1 && m.callers.len() >= MAKER_CALLERS;
        made.iter()
            .filter(|(_, m)| fixed(m))
            .map(|(place, _)| place.0)
            .collect()
    }

    /// Passing nodes and their callers if the functions of `set` were wrappers.
    fn look(&self, set: &[bool]) -> Vec<Seen> {
        let mut seen = vec![Seen::default(); self.kinds.len()];
        // Whether all below a call passes: an inner call comes before the outer.
        let mut passes = Vec::with_capacity(self.calls.len());
        for (i, call) in self.calls.iter().enumerate() {
            let below = match call.inner {
                None => true,
                Some(inner) if inner < i => {
                    let func = self.calls[inner].func;
                    if passes[inner] && func != call.func {
                        seen[func].callers.insert(call.func);
                    }
                    passes[inner] && set[func]
                }
                // A trie is not made so.
                Some(_) => false,
            };
            passes.push(below);
            seen[call.func].passes |= below;
        }
        seen
    }

    /// The wrappers, with the number of their callers.
    fn wrappers(&self) -> Vec<(usize, usize)> {
        let named: Vec<bool> = self.kinds.iter().map(|k| *k == Kind::Helper).collect();
        let places = self.places();
        let makers = self.makers();
        let few = |f: usize| {
            self.kinds[f] == Kind::Unnamed
                && places[f] <= PLACES
                && self.sizes[f] <= SIZE
                && !makers.contains(&f)
        };
        let mut set: Vec<bool> = (0..named.len()).map(|f| named[f] || few(f)).collect();
        loop {
            let seen = self.look(&set);
            let wide = |f: usize| seen[f].callers.len() >= CALLERS;
            let mut next: Vec<bool> = (0..set.len())
                .map(|f| named[f] || (set[f] && seen[f].passes && wide(f)))
                .collect();
            // Inner ones of chains: from outer to inner.
            loop {
                let inner = |f: usize| {
                    let callers = &seen[f].callers;
                    set[f]
                        && !next[f]
                        && seen[f].passes
                        && !callers.is_empty()
                        && callers.iter().all(|&c| next[c])
                };
                let more: Vec<usize> = (0..set.len()).filter(|&f| inner(f)).collect();
                if more.is_empty() {
                    break;
                }
                more.iter().for_each(|&f| next[f] = true);
            }
            if next == set {
                let found = (0..set.len()).filter(|&f| set[f] && !named[f]);
                return found.map(|f| (f, seen[f].callers.len())).collect();
            }
            set = next;
        }
    }
}

/// The wrappers of a process, in order of object and address.
pub(crate) fn wrappers(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    helpers: &Helpers,
) -> Vec<Wrapper> {
    let mut maker = Maker::default();
    for ledger in &snapshot.ledgers {
        maker.add(snapshot, ledger, symbols, helpers);
    }
    if !maker.graph.kinds.contains(&Kind::Unnamed) {
        return Vec::new();
    }
    let places = maker.graph.places();
    let found = maker.graph.wrappers();
    let callers: HashMap<usize, usize> = found.into_iter().collect();
    let mut out: Vec<Wrapper> = maker
        .ids
        .into_iter()
        .filter_map(|(id, (f, size))| match id {
            Id::Unnamed(object, build_id, start) => Some(Wrapper {
                object,
                build_id,
                start,
                size,
                callers: *callers.get(&f)?,
                places: places[f],
            }),
            _ => None,
        })
        .collect();
    out.sort_unstable();
    out
}

#[derive(Default)]
struct Maker {
    graph: Graph,
    /// Number and size of each function.
    ids: HashMap<Id, (usize, u64)>,
}

impl Maker {
    fn add(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        symbols: &mut Symbolizer,
        helpers: &Helpers,
    ) {
        // Many nodes have one return address.
        let mut known: HashMap<(u64, u32, bool), (usize, u64)> = HashMap::new();
        let base = self.graph.calls.len();
        // Node 0 is the root.
        for node in ledger.nodes.iter().skip(1) {
            let (func, addr) = *known
                .entry((node.ra, node.module, node.dead))
                .or_insert_with(|| {
                    let place = symbols.function(snapshot, ledger, node);
                    let addr = place.addr;
                    (self.number(place, helpers), addr)
                });
            let inner = (node.parent as usize).checked_sub(1).map(|n| base + n);
            self.graph.calls.push(Call { func, addr, inner });
        }
        for (node, sum) in &ledger.site_sums {
            if let Some(site) = (*node as usize).checked_sub(1) {
                self.graph.live.push((base + site, sum.bytes, sum.calls));
            }
        }
    }

    fn number(&mut self, place: Place, helpers: &Helpers) -> usize {
        let Place {
            object,
            build_id,
            function,
            ..
        } = place;
        let (id, size) = match (function.name, function.bounds) {
            (Some(name), _) => (Id::Named(object, name), 0),
            (None, Some((start, end))) => (Id::Unnamed(object, build_id, start), end - start),
            (None, None) => (Id::Unknown(object, build_id), 0),
        };
        if let Some((number, _)) = self.ids.get(&id) {
            return *number;
        }
        let kind = match &id {
            Id::Named(_, name) if helpers.is_helper(name) => Kind::Helper,
            Id::Unnamed(..) => Kind::Unnamed,
            _ => Kind::Other,
        };
        let number = self.graph.kinds.len();
        self.graph.kinds.push(kind);
        self.graph.sizes.push(size);
        self.ids.insert(id, (number, size));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie made of stacks, innermost frame first. A frame is `function:place`; functions in capitals have a name, `M` is a
    /// helper; `B` in small letters, `big`, is a large one.
    #[derive(Default)]
    struct Trie {
        graph: Graph,
        names: Vec<String>,
        nodes: HashMap<(Option<usize>, String), usize>,
    }

    impl Trie {
        fn func(&mut self, name: &str) -> usize {
            if let Some(f) = self.names.iter().position(|n| n == name) {
                return f;
            }
            self.names.push(name.to_owned());
            self.graph.kinds.push(match name {
                _ if name.starts_with('M') => Kind::Helper,
                _ if name.starts_with(char::is_uppercase) => Kind::Other,
                _ => Kind::Unnamed,
            });
            let size = if name.starts_with("big") {
                SIZE + 1
            } else {
                SIZE
            };
            self.graph.sizes.push(size);
            self.names.len() - 1
        }

        fn add(&mut self, stack: &str) -> usize {
            let mut inner = None;
            for frame in stack.split_whitespace() {
                let key = (inner, frame.to_owned());
                let at = match self.nodes.get(&key) {
                    Some(&at) => at,
                    None => {
                        let (name, place) = frame.split_once(':').unwrap_or((frame, "0"));
                        let (func, addr) = (self.func(name), place.parse().unwrap());
                        self.graph.calls.push(Call { func, addr, inner });
                        self.graph.calls.len() - 1
                    }
                };
                self.nodes.insert(key, at);
                inner = Some(at);
            }
            inner.unwrap()
        }

        fn live(&mut self, stack: &str, bytes: u64, count: u64) {
            let at = self.add(stack);
            self.graph.live.push((at, bytes, count));
        }

        fn found(&self) -> Vec<&str> {
            let found = self.graph.wrappers();
            let mut names: Vec<&str> = found.iter().map(|(f, _)| &*self.names[*f]).collect();
            names.sort_unstable();
            names
        }
    }

    fn found(stacks: &[String]) -> Vec<String> {
        let mut trie = Trie::default();
        for stack in stacks {
            trie.add(stack);
        }
        trie.found().iter().map(|s| (*s).to_owned()).collect()
    }

    /// Five callers of `inner`, of which `how` makes stacks.
    fn five(inner: &str) -> Vec<String> {
        (0..5).map(|i| format!("{inner} user{i} top")).collect()
    }

    #[test]
    fn many_callers_make_a_wrapper() {
        assert_eq!(found(&five("x")), ["x"]);
        assert_eq!(found(&five("x")[1..]), [""; 0], "four callers");
        assert_eq!(found(&five("X")), [""; 0], "one with a name");
        assert_eq!(found(&five("M x")), ["x"], "above a helper");
        assert_eq!(found(&five("N x")), [""; 0], "above one that is none");
        assert_eq!(found(&five("big")), [""; 0]);
        // Calls from one function count once, recursion not at all.
        let same: Vec<String> = (0..9).map(|i| format!("x user:{i}")).collect();
        assert_eq!(found(&same), [""; 0]);
        assert_eq!(found(&five("x x:0")[..4]), [""; 0]);
    }

    #[test]
    fn many_places_make_none() {
        let mut stacks = [five("x:0"), five("x:1")].concat();
        assert_eq!(found(&stacks), ["x"]);
        stacks.push("x:2 user0".into());
        assert_eq!(found(&stacks), [""; 0]);
        // Also a place that calls something else counts.
        stacks.pop();
        stacks.push("N x:2".into());
        assert_eq!(found(&stacks), [""; 0]);
    }

    #[test]
    fn chains() {
        // Two deep, the inner one with one caller.
        assert_eq!(found(&five("raw x")), ["raw", "x"]);
        // Three, and only the outer one has many callers.
        assert_eq!(found(&five("raw x dup")), ["dup", "raw", "x"]);
        // Below a helper with a name.
        assert_eq!(found(&["raw Malloc user".into()]), ["raw"]);
        // One caller that is no wrapper keeps the inner one, and all that stands on it.
        let mut stacks = five("raw x");
        stacks.push("raw other".into());
        assert_eq!(found(&stacks), [""; 0]);
        // With enough callers of its own it does not matter.
        stacks.extend(five("raw"));
        assert_eq!(found(&stacks), ["raw", "x"]);
        // A function with many places in between.
        let mut stacks = five("raw mid x");
        stacks.extend((1..9).map(|i| format!("raw mid:{i} x")));
        assert_eq!(found(&stacks), [""; 0]);
    }

    #[test]
    fn one_size_makes_a_maker() {
        let mut trie = Trie::default();
        for (i, stack) in five("new").iter().enumerate() {
            trie.live(stack, 64 * (i as u64 + 1), i as u64 + 1);
        }
        assert_eq!(trie.found(), [""; 0]);
        // Another size, or a mean that is not whole.
        let mut other = Trie::default();
        std::mem::swap(&mut other, &mut trie);
        other.live("new user0:7", 32, 1);
        assert_eq!(other.found(), ["new"]);
        for (i, stack) in five("x").iter().enumerate() {
            trie.live(stack, 65, 2 * i as u64 + 2);
        }
        assert_eq!(trie.found(), ["x"]);
        // Too few to tell.
        let mut trie = Trie::default();
        for stack in five("x") {
            trie.add(&stack);
        }
        trie.live("x user0 top", 64, 1);
        trie.live("x user1 top", 64, 1);
        assert_eq!(trie.found(), ["x"]);
    }

    #[test]
    fn order_does_not_matter() {
        let mut stacks = [five("raw x"), five("raw x dup"), five("x:1"), five("N y")].concat();
        stacks.push("raw M z".into());
        let expected = found(&stacks);
        assert_eq!(expected, ["dup", "raw", "x"]);
        for step in [1, 2, 4, 8, 11, 13, 17] {
            let n = stacks.len();
            let turned: Vec<String> = (0..n).map(|i| stacks[i * step % n].clone()).collect();
            // All of them, if the step has no factor in common.
            if turned.iter().collect::<HashSet<_>>().len() == n {
                assert_eq!(found(&turned), expected, "{step}");
            }
        }
        stacks.reverse();
        assert_eq!(found(&stacks), expected);
    }

    #[test]
    fn nonsense_ends() {
        let mut trie = Trie::default();
        trie.add("x y z");
        trie.graph.calls[0].inner = Some(2);
        trie.graph.calls[1].inner = Some(99);
        trie.graph.live.push((2, 10, 0));
        trie.graph.live.push((77, 10, 1));
        assert_eq!(trie.found(), [""; 0]);
    }
}
