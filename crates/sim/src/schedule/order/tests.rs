use super::*;

#[test]
fn schedules_read_back() {
    for text in ["1", "0,12:1,40:0"] {
        assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
    }
    assert!("0,12".parse::<Schedule>().is_err());
}

#[test]
fn a_tree_tries_every_choice_once() {
    let mut tree = ScheduleTree::new(1, true);
    let mut runs = Vec::new();
    let mut state = 0;
    loop {
        tree.begin_run();
        let mut run = Vec::new();
        for step in 0..3 {
            state += 1;
            let decision = ThreadChoice {
                options: &[0, 1],
                asleep: 0,
                preempts: true,
                step,
                event: 0,
            };
            match tree.choose(&decision, || state) {
                Choice::Go(thread) => run.push(thread),
                Choice::Known | Choice::Astray => panic!("no two states are the same"),
            }
        }
        runs.push(run);
        if !tree.advance() {
            break;
        }
    }
    runs.sort_unstable();
    assert_eq!(runs, [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]);
}
