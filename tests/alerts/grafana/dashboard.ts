// The beginning of a program that only compiles if a dashboard is one by Grafana's own types: `tests/alerts/run` writes the JSON behind it.
import type { Dashboard, Panel } from '@grafana/schema';

// JSON has the values of an enum, not their names.
type Json<T> = T extends string
    ? `${T}`
    : T extends number | boolean | null | undefined
      ? T
      : T extends (infer Item)[]
        ? Json<Item>[]
        : T extends object
          ? { [Key in keyof T]: Json<T[Key]> }
          : T;

export const dashboard: Json<Omit<Dashboard, 'panels'> & { panels: Panel[] }> =
