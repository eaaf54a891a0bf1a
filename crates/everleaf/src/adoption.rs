//! Adoption: a tree gets other types of keys and values, or none, without being copied.

use engines::index::{Bounds, Direction};
use engines::{Error, ErrorKind, Result};
use pool::Encodings;

use crate::backend::OpenTree;
use crate::tree_types::EntryTypes;
use crate::typed::{TypedTree, decode_key, decode_value};
use crate::{EncodedValue, Key, Store, Tree};

impl Store {
    /// Gives the tree `name` these types of keys and values: a tree of byte strings becomes typed,
    /// and a typed one gets other types. Its bytes stay as they are. All of them are read first, and
    /// if one is no key or value of the types, nothing is changed. Durable when this returns; a
    /// crash leaves the tree with the old or with the new types. O(n); threads that open trees wait.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?; // made before its types were known
    /// stock.put("apple", 12_u32.to_be_bytes())?;
    /// drop(stock);
    ///
    /// assert!(store.typed::<String, u32>("stock").is_err());
    /// let stock = store.adopt::<String, u32>("stock")?;
    /// assert_eq!(stock.get("apple")?, Some(12));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotOfType`] if an entry is of other types; [`ErrorKind::NoSuchTree`];
    /// [`ErrorKind::InUse`] while a handle or a range of the tree lives, or while the store recovers
    /// ([`Store::finish_recovery`]); [`ErrorKind::BadEncoding`]; [`ErrorKind::TooManyTrees`], as the
    /// change needs a free slot for a moment; [`ErrorKind::ReadOnly`];
    /// [`ErrorKind::BatchUnfinished`].
    pub fn adopt<K: Key, V: EncodedValue>(&self, name: &str) -> Result<TypedTree<K, V>> {
        let types = EntryTypes::of::<K, V>();
        let adopted = self.give_encodings(name, Some(&types.names()), |key, value| {
            decode_key::<K>(name, key)?;
            decode_value::<V>(name, value)?;
            Ok(())
        });
        self.at(adopted)?;
        self.typed(name)
    }

    /// Does the same as [`Store::adopt`] with types that are known only by the names of their encodings.
    /// `check` gets each key and its value, and returns an error if they are none of these types;
    /// nothing is changed then. Returns the tree, as [`Store::encoded_tree`] does.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{Encodings, ErrorKind};
    ///
    /// store.tree("ages")?.put("ada", [36])?;
    /// let types = Encodings { key: "text".to_owned(), value: "u8".to_owned() };
    /// let ages = store.adopt_encoded("ages", &types, |key, value| {
    ///     if std::str::from_utf8(key).is_ok() && value.len() == 1 {
    ///         return Ok(());
    ///     }
    ///     let why = "a key is no text, or a value has not one byte".to_owned();
    ///     Err(ErrorKind::NotEncodable { why }.into())
    /// })?;
    /// ages.put("bob", [41])?;
    /// assert_eq!(store.typed::<String, u8>("ages")?.get("bob")?, Some(41));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of `check`, and those of [`Store::adopt`], except for [`ErrorKind::NotOfType`].
    pub fn adopt_encoded(
        &self,
        name: &str,
        encodings: &Encodings,
        check: impl Fn(&[u8], &[u8]) -> Result<()>,
    ) -> Result<Tree> {
        let adopted = self.give_encodings(name, Some(encodings), check);
        self.at(adopted)?;
        let kind = self.open_tree(name)?.kind();
        self.encoded_tree(name, kind, encodings)
    }

    /// Makes the tree `name` one of byte strings, which forgets the types of its keys and values. Its
    /// bytes stay as they are, and it takes any from now on (a tree of words: any eight bytes). Durable when this returns. O(1).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.typed::<String, u32>("stock")?;
    /// stock.put("apple", &12)?;
    /// drop(stock);
    ///
    /// let stock = store.adopt_as_bytes("stock")?;
    /// assert_eq!(stock.encodings(), None);
    /// assert_eq!(stock.get("apple")?.as_deref(), Some(12_u32.to_be_bytes().as_slice()));
    /// stock.put("pear", "three")?; // takes any bytes now
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Store::adopt`], except for [`ErrorKind::NotOfType`].
    pub fn adopt_as_bytes(&self, name: &str) -> Result<Tree> {
        let adopted = self.give_encodings(name, None, |_, _| Ok(()));
        self.at(adopted)?;
        self.open_tree(name)
    }

    /// Gives a tree other encodings, if `check` accepts all of its entries.
    fn give_encodings(
        &self,
        name: &str,
        encodings: Option<&Encodings>,
        check: impl Fn(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.inner.expect_trees_may_change()?;
        // The thread that recovers in the background uses the trees.
        if !self.inner.has_recovered() {
            return Err(ErrorKind::InUse.into());
        }
        let backend = self.inner.backend()?;
        // New handles are made under this lock only.
        let mut trees = self.inner.trees()?;
        let Some(root) = backend.find_tree(name)? else {
            return Err(Error::no_such_tree(name));
        };
        let mut tree = match trees.remove(name) {
            Some(tree) => tree,
            None => self.open_root(backend, &root)?,
        };
        let given = if !tree.is_unshared() {
            Err(ErrorKind::InUse.into())
        } else if root.encodings.as_ref() == encodings {
            Ok(())
        } else {
            // If a crash took an epoch back, the tree would have entries that were not checked.
            let synced = tree.index().sync();
            let checked = synced.and_then(|()| check_entries(&tree, check));
            checked.and_then(|()| backend.set_encodings(&root, encodings))
        };
        if given.is_ok() {
            tree.encodings = encodings.cloned();
        }
        trees.insert(name.to_owned(), tree);
        given?;
        // With deferred durability the change is not durable yet.
        backend.sync()
    }
}

/// Calls `check` with each entry of a tree, until it returns an error.
fn check_entries(tree: &OpenTree, check: impl Fn(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut entries = tree.index().cursor(Bounds::all(), Direction::Forward)?;
    while entries.advance()? {
        let (key, value) = entries.entry();
        check(key, value)?;
    }
    Ok(())
}
