use openftl_sim::{Run, Tally, explore, shrink, step::write_steps};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap_or(1)).collect();
    let mut tally = Tally::default();
    let mut seen = std::collections::BTreeMap::new();
    for seed in a[0]..a[1] {
        let run = Run::draw(seed);
        let e = explore(&run);
        tally += &e.tally;
        if let Some(f) = e.failure {
            let n: &mut u64 = seen.entry(f.place.clone()).or_default();
            *n += 1;
            println!("{seed} {} {}", f.place, f.message.chars().take(300).collect::<String>());
            if *n == 1 && a.len() > 2 {
                let s = shrink(&run, &f);
                println!(
                    "  shrunk {} attempts to {} steps: {}\n  {}\n {}",
                    s.attempts,
                    s.run.steps.len(),
                    s.failure.message.chars().take(900).collect::<String>(),
                    run.setting,
                    write_steps(&s.run.steps)
                );
            }
        }
    }
    println!("{tally:?}\n{seen:?}");
}
