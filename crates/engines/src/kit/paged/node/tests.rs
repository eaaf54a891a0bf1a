use super::*;

#[test]
fn an_order_is_a_list() {
    let mut order = Order::default();
    let mut list = Vec::new();
    for slot in 0..ENTRIES_MAX {
        let position = slot * 7 % (list.len() + 1);
        order.insert(position, slot);
        list.insert(position, slot);
        assert_eq!(
            (order.count(), order.slots().collect::<Vec<_>>()),
            (list.len(), list.clone())
        );
    }
    assert_eq!(order, Order::of(list.iter().copied()));
    assert!(order.validated((1 << ENTRIES_MAX) - 1, 0).is_ok() && order.validated(1, 0).is_err());
    while !list.is_empty() {
        let position = list.len() * 5 / 7;
        order.remove(position);
        list.remove(position);
        assert_eq!(
            (order.count(), order.slots().collect::<Vec<_>>()),
            (list.len(), list.clone())
        );
    }
    assert_eq!(order, Order::default());
}
