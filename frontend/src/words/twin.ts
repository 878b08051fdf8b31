/** The shape of the English words, for those of another language. */
export type Twin<T> = T extends (...given: infer Given) => infer Said
  ? (...given: Given) => Said extends string ? string : Said
  : T extends object
    ? { [K in keyof T]: Twin<T[K]> }
    : T;
