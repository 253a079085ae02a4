//! Turns what may belong together into pairs, as many as there can be.

/// As many of the left ones as can have a right one of their own, by augmenting paths.
pub fn matched(fit: &[Vec<usize>], rights: usize) -> Vec<Option<usize>> {
    fn place(left: usize, fit: &[Vec<usize>], taken: &mut [Option<usize>], seen: &mut [bool]) -> bool {
        for right in &fit[left] {
            if std::mem::replace(&mut seen[*right], true) {
                continue;
            }
            let is_free = match taken[*right] {
                None => true,
                Some(other) => place(other, fit, taken, seen),
            };
            if is_free {
                taken[*right] = Some(left);
                return true;
            }
        }
        false
    }
    let mut taken = vec![None; rights];
    for left in 0..fit.len() {
        place(left, fit, &mut taken, &mut vec![false; rights]);
    }
    let mut result = vec![None; fit.len()];
    for (right, left) in taken.into_iter().enumerate() {
        if let Some(left) = left {
            result[left] = Some(right);
        }
    }
    result
}
