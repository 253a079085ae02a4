//! A map with texts as keys, in their order: two lists, as everything here has few entries, and a tree takes kilobytes of the
//! program for each kind of value.

use std::fmt;
use std::marker::PhantomData;
#[cfg(test)]
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What stands under each key. Looking one up takes as long as in a tree, putting one in as long as there are others.
#[derive(Clone, PartialEq, Eq)]
pub struct TextMap<V> {
    /// Sorted, each once. Apart from the values, so that the program has what finds one only once.
    keys: Vec<String>,
    /// Each at the place of its key.
    values: Vec<V>,
}

/// Where the key is, or else where it would be.
fn place_of(keys: &[String], key: &str) -> Result<usize, usize> {
    keys.binary_search_by(|known| known.as_str().cmp(key))
}

impl<V> TextMap<V> {
    pub const fn new() -> TextMap<V> {
        TextMap { keys: Vec::new(), values: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn clear(&mut self) {
        *self = TextMap::new();
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        self.values.get(place_of(&self.keys, key).ok()?)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        place_of(&self.keys, key).is_ok()
    }

    /// In the place of what stood there.
    pub fn insert(&mut self, key: String, value: V) {
        match place_of(&self.keys, &key) {
            Ok(place) => {
                if let Some(known) = self.values.get_mut(place) {
                    *known = value;
                }
            }
            Err(place) => {
                self.keys.insert(place, key);
                self.values.insert(place, value);
            }
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<V> {
        let place = place_of(&self.keys, key).ok()?;
        self.keys.remove(place);
        Some(self.values.remove(place))
    }

    /// Changes what stands under the key; what is not there begins as nothing.
    pub fn change(&mut self, key: &str, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        if !self.contains_key(key) {
            self.insert(key.to_owned(), V::default());
        }
        if let Ok(place) = place_of(&self.keys, key)
            && let Some(value) = self.values.get_mut(place)
        {
            change(value);
        }
    }

    pub fn keys(&self) -> std::slice::Iter<'_, String> {
        self.keys.iter()
    }

    pub fn values(&self) -> std::slice::Iter<'_, V> {
        self.values.iter()
    }

    pub fn iter(&self) -> std::iter::Zip<std::slice::Iter<'_, String>, std::slice::Iter<'_, V>> {
        self.keys.iter().zip(&self.values)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut V)> {
        self.keys.iter().zip(&mut self.values)
    }

    /// Keeps those of which this is so.
    pub fn retain(&mut self, is_kept: impl Fn(&String, &V) -> bool) {
        for place in (0..self.len()).rev() {
            let entry = self.keys.get(place).zip(self.values.get(place));
            if entry.is_some_and(|(key, value)| !is_kept(key, value)) {
                self.keys.remove(place);
                self.values.remove(place);
            }
        }
    }
}

impl<V> Default for TextMap<V> {
    fn default() -> TextMap<V> {
        TextMap::new()
    }
}

impl<V> Extend<(String, V)> for TextMap<V> {
    fn extend<I: IntoIterator<Item = (String, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl<V> FromIterator<(String, V)> for TextMap<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> TextMap<V> {
        let mut map = TextMap::new();
        map.extend(entries);
        map
    }
}

impl<V, const N: usize> From<[(String, V); N]> for TextMap<V> {
    fn from(entries: [(String, V); N]) -> TextMap<V> {
        entries.into_iter().collect()
    }
}

impl<V> IntoIterator for TextMap<V> {
    type Item = (String, V);
    type IntoIter = std::iter::Zip<std::vec::IntoIter<String>, std::vec::IntoIter<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter().zip(self.values)
    }
}

impl<'a, V> IntoIterator for &'a TextMap<V> {
    type Item = (&'a String, &'a V);
    type IntoIter = std::iter::Zip<std::slice::Iter<'a, String>, std::slice::Iter<'a, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// For tests, which know that it is there.
#[cfg(test)]
impl<V> Index<&str> for TextMap<V> {
    type Output = V;

    fn index(&self, key: &str) -> &V {
        self.get(key).unwrap()
    }
}

impl<V: fmt::Debug> fmt::Debug for TextMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<V: Serialize> Serialize for TextMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for TextMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextMap<V>, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

struct MapVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for MapVisitor<V> {
    type Value = TextMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<TextMap<V>, A::Error> {
        let mut map = TextMap::new();
        while let Some((key, value)) = access.next_entry()? {
            map.insert(key, value);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, u32)]) -> TextMap<u32> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    }

    #[test]
    fn entries_stand_in_the_order_of_their_keys_each_once_and_the_last_that_came() {
        let mut all = map(&[("b", 1), ("a", 2), ("c", 3), ("a", 4)]);
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"{"a":4,"b":1,"c":3}"#);
        assert_eq!(format!("{all:?}"), r#"{"a": 4, "b": 1, "c": 3}"#);
        assert_eq!(serde_json::from_str::<TextMap<u32>>(r#"{"c":3,"b":1,"a":7,"a":4}"#).unwrap(), all);
        assert_eq!((all.len(), all.get("b"), all.get("d"), all.contains_key("c")), (3, Some(&1), None, true));
        assert_eq!((all.remove("b"), all.remove("b")), (Some(1), None));
        assert_eq!(all, map(&[("c", 3), ("a", 4)]));
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 4), ("c".to_owned(), 3)]);
    }

    #[test]
    fn what_is_not_kept_goes_with_its_value_and_what_is_not_there_begins_as_nothing() {
        let mut all = map(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
        all.retain(|key, value| key != "a" && *value != 3);
        assert_eq!(all, map(&[("b", 2), ("d", 4)]));
        for key in ["d", "e"] {
            all.change(key, |value| *value += 1);
        }
        all.iter_mut().for_each(|(_, value)| *value *= 10);
        assert_eq!((&all, all["d"]), (&map(&[("b", 20), ("d", 50), ("e", 10)]), 50));
        all.clear();
        assert!(all.is_empty() && all == TextMap::default());
    }
}
