"""What GradStudio costs, as ratios against a bare loop measured in the same run. Run by hand: python -m benchmarks"""
